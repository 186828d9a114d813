-- Finds the items that a subscriber selects among the skipped ones. It examines them in order, from its mark on, so it examines nothing
-- twice; an item that this call has skipped is examined only for subscribers whose conditions it meets.
-- CALL: more = false, seen
-- Bounded by instructions run; reading an item counts as some, and so do its bytes.
local selection = {WORK = 8000, ITEM = 20, CHUNK = 20}

local function check_work()
  call.selection_more = call.selection_more or call.compare_work >= selection.WORK or call.budget_skipped >= budget.SKIPS
  return call.selection_more
end

local function note_seen(entry)
  compare.count(selection.ITEM + #entry.body / 1024)
  call.selection_seen = call.selection_seen or {}
  call.selection_seen[entry.position] = entry
end

local function entry_at(position)
  if not (call.selection_seen and call.selection_seen[position]) then
    local entry = log_entries.current(position)
    -- Only somebody with redis-cli removes an entry of a waiting item.
    if not entry then return skipped_items.remove(position) end
    entry.position, entry.past = position, attempt_history.of(position)
    if entry.hints ~= '' and expiry.expire_if_due(position, entry, entry.past.attempts) then return nil end
    note_seen(entry)
  end
  return call.selection_seen[position]
end

-- Skips the next items of the queue; returns false when there are none, or the bound is reached.
function selection.pass()
  -- An item that came back may be examined for every selector before the work is counted again; a new one has been examined for none.
  local back = call.partition_before.hinted or redis.call('EXISTS', key.ready) == 1
  local items = check_work() and {} or ready_queue.next(back and selectors.count() > selection.CHUNK and 1 or selection.CHUNK)
  for _, entry in ipairs(items) do
    note_seen(entry)
    skipped_items.put(entry)
  end
  return #items > 0
end

local function selects(subid, entry)
  local met = selection_progress.item(entry.position)
  return (not met or met.by[subid]) and selectors.selects(selectors.get(subid), entry)
end

local function search(subid)
  local mark, found, places = selection_progress.mark(subid), nil, nil
  if not mark then return nil end
  repeat
    places = check_work() and {} or skipped_items.after('', mark, selection.CHUNK)
    for _, place in ipairs(places) do
      local entry = entry_at(place)
      if entry and selects(subid, entry) then
        found = entry
        break
      end
      mark = skipped_items.place(place)
      if check_work() then break end
    end
  until found or #places < selection.CHUNK
  selection_progress.set(subid, (found or check_work()) and mark or nil)
  return found
end

-- Returns the next item for a subscriber: those noted for it before its mark, or the first of all for one without a selector. An item that
-- the bounds of its key hold back is no longer among the skipped ones.
function selection.next(subid)
  local selects, place, entry = selectors.get(subid), nil, nil
  repeat
    place = skipped_items.after(selects and subid or '', '', 1)[1]
    entry = place and entry_at(place) or not place and selects and search(subid) or nil
    if entry and call.key_limits_applied and not key_limits.admits(entry) then
      skipped_items.remove(entry.position)
      -- Look for another.
      place, entry = entry.position, nil
    end
  until entry or not place
  return entry
end

-- Whether an item waits for a subscriber with a selector. The item is noted, so that the next call need not examine it again.
function selection.has_match(subid)
  if skipped_items.after(subid, '', 1)[1] then return true end
  local entry = search(subid)
  if not entry then return false end
  skipped_items.note(subid, entry.position)
  selection_progress.keep(subid, skipped_items.place(entry.position))
  return true
end
