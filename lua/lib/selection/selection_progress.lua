-- How far each subscription with a selector has examined the skipped items: subid -> mark, the padded position up to which it has. A
-- subscription without a mark has examined all, and is tried again when an item meets its conditions.
-- CALL: marks, stored, kept, met, standing
-- `met` has the items skipped in this call that are still there, by position: their place, and the set of subids that they may be for;
-- `standing` is their number for each subid. `kept` are subids whose mark is written in any case.
local selection_progress = {}

local function marks()
  if not call.selection_progress_marks then
    call.selection_progress_marks, call.selection_progress_stored, call.selection_progress_kept = {}, {}, {}
    local found = redis.call('HGETALL', key.selection_progress)
    for i = 1, #found, 2 do
      call.selection_progress_marks[found[i]], call.selection_progress_stored[found[i]] = found[i + 1], found[i + 1]
    end
  end
  return call.selection_progress_marks
end

-- Returns the record of an item that was skipped in this call and is still there.
function selection_progress.item(position)
  return call.selection_progress_met and call.selection_progress_met[position]
end

-- Returns nil if the subscription has examined all.
function selection_progress.mark(subid)
  return marks()[subid]
end

function selection_progress.set(subid, mark)
  marks()[subid] = mark
end

-- Sets a mark that must be written, because an item is noted for the subscription.
function selection_progress.keep(subid, mark)
  selection_progress.set(subid, mark)
  call.selection_progress_kept[subid] = true
end

-- Records a skipped item, and the subids that it may be for.
function selection_progress.add_item(position, place, by)
  if not call.selection_progress_met then call.selection_progress_met, call.selection_progress_standing = {}, {} end
  call.selection_progress_met[position] = {place = place, by = by}
  for subid in pairs(by) do call.selection_progress_standing[subid] = (call.selection_progress_standing[subid] or 0) + 1 end
end

-- Removes an item: subscriptions that lag only because of it do not lag any more.
function selection_progress.remove_item(position)
  local item = selection_progress.item(position)
  if not item then return end
  local known = marks()
  call.selection_progress_met[position] = nil
  for subid in pairs(item.by) do
    local standing = call.selection_progress_standing[subid] - 1
    call.selection_progress_standing[subid] = standing
    local stays = call.selection_progress_stored[subid] or call.selection_progress_kept[subid]
    if standing == 0 and not stays then known[subid] = nil end
  end
end

-- Returns the lagging subscriptions in the order of their subids.
function selection_progress.all()
  local found = {}
  for subid in pairs(marks()) do found[#found + 1] = subid end
  table.sort(found)
  return found
end

-- Resets the mark after a change of selector: a new one has examined nothing.
function selection_progress.reset(subid, selects)
  marks()[subid], call.selection_progress_stored[subid] = selects and '' or nil, selects and '' or nil
  if selects then redis.call('HSET', key.selection_progress, subid, '') else redis.call('HDEL', key.selection_progress, subid) end
end

-- Returns the subids that have not examined an item skipped in this call that may be for them and is still there.
local function left()
  local found = {}
  for _, item in pairs(call.selection_progress_met or {}) do
    for subid in pairs(item.by) do
      local mark = call.selection_progress_marks[subid]
      if mark and mark < item.place then found[subid] = true end
    end
  end
  return found
end

-- Writes the changes of this call. An item that was skipped and taken in the same call makes nobody lag.
function selection_progress.save()
  if not call.selection_progress_marks then return end
  local lack = left()
  for subid, mark in pairs(call.selection_progress_marks) do
    local stored = call.selection_progress_stored[subid]
    if mark ~= stored and (stored or call.selection_progress_kept[subid] or lack[subid]) then
      write_buffer.add('HSET', key.selection_progress, subid, mark)
    end
  end
  for subid in pairs(call.selection_progress_stored) do
    if not call.selection_progress_marks[subid] then write_buffer.add('HDEL', key.selection_progress, subid) end
  end
end
