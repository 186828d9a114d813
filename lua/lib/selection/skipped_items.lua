-- Items that dispatch has skipped because nobody with credit selects them. Members are `subid position`, all of one score, so they sort
-- as texts; an item with another priority has its rank before the position. Each item is here once with an empty subid. It is also noted
-- for a subscriber that selects it although its mark is beyond it: the item came back, is more urgent, or was found while there was no
-- credit. A subscriber with more than `MOST` notes examines all skipped items anew. `pages` caches ranges, which many search alike;
-- `named` says whether there are notes, once that has been asked.
-- CALL: pages, named, places, last
local skipped_items = {MOST = 1000}

-- Returns a text of digits that sorts as items go out: a padded position begins with seven zeros and another digit.
function skipped_items.place(position)
  if not call.partition_before.hinted then
    -- Cached: many subscribers search the same items.
    call.skipped_items_places = call.skipped_items_places or {}
    call.skipped_items_places[position] = call.skipped_items_places[position] or positions.pad(position)
    return call.skipped_items_places[position]
  end
  local rank, padded = scheduling.rank(position), positions.pad(position)
  if not rank then return padded end
  return (rank < scheduling.USUAL and '00000000' or '') .. rank .. padded
end

function skipped_items.member(subid, position)
  return subid .. ' ' .. skipped_items.place(position)
end

-- Whether an item is noted for any subscriber; such a subscriber has a mark.
local function any_named()
  if call.skipped_items_named == nil then call.skipped_items_named = redis.call('ZLEXCOUNT', key.skipped, '(!', '+') > 0 end
  return call.skipped_items_named
end

-- Returns up to `count` positions of a subid after the place `mark`.
function skipped_items.after(subid, mark, count)
  local name = subid .. ' ' .. mark
  local page = name .. ' ' .. count
  if subid ~= '' and not any_named() then return {} end
  call.skipped_items_pages = call.skipped_items_pages or {}
  if not call.skipped_items_pages[page] then
    local found = redis.call('ZRANGEBYLEX', key.skipped, '(' .. name, '(' .. subid .. '!', 'LIMIT', 0, count)
    for i, member in ipairs(found) do found[i] = scheduling.unpad(member) end
    call.skipped_items_pages[page] = found
  end
  return call.skipped_items_pages[page]
end

-- Returns the first item of a rank, or one of another rank if it has none.
function skipped_items.first(rank)
  local before = rank < scheduling.USUAL and '00000000' .. rank or rank > scheduling.USUAL and rank or '00000001'
  return skipped_items.after('', before, 1)[1]
end

function skipped_items.count()
  return redis.call('ZLEXCOUNT', key.skipped, '[ ', '(!')
end

-- Notes an item for a subscriber, before its mark.
function skipped_items.note(subid, position)
  call.skipped_items_pages = {}
  if subid ~= '' then call.skipped_items_named = true end
  redis.call('ZADD', key.skipped, 0, skipped_items.member(subid, position))
end

local function forget(subid)
  call.skipped_items_pages = {}
  redis.call('ZREMRANGEBYLEX', key.skipped, '[' .. subid .. ' ', '(' .. subid .. '!')
end

-- Returns the last place used in this call, empty for none.
local function last()
  if not call.skipped_items_last then
    local member = redis.call('ZRANGE', key.skipped, '(!', '[ ', 'BYLEX', 'REV', 'LIMIT', 0, 1)[1]
    call.skipped_items_last = member and string.sub(member, 2) or ''
  end
  return call.skipped_items_last
end

local function tell(subid, entry, mark)
  skipped_items.note(subid, entry.position)
  selection_progress.keep(subid, mark)
  if redis.call('ZLEXCOUNT', key.skipped, '[' .. subid .. ' ', '(' .. subid .. '!') > skipped_items.MOST then
    forget(subid)
    selection_progress.keep(subid, '')
  end
end

-- Skips an item. Subscribers that it may be for lag now; for those that have examined later items it is noted, if they select it.
function skipped_items.put(entry)
  local place, before = skipped_items.place(entry.position), last()
  local subids, by = selectors.met(entry)
  skipped_items.note('', entry.position)
  if place > before then call.skipped_items_last = place end
  selection_progress.add_item(entry.position, place, by)
  for _, subid in ipairs(subids) do
    local mark = selection_progress.mark(subid)
    if not mark and place > before then
      selection_progress.set(subid, before)
    elseif (not mark or mark >= place) and selectors.selects(selectors.get(subid), entry) then
      tell(subid, entry, mark or before)
    end
  end
end

-- Removes an item if it is here. Only for a partition with selectors.
function skipped_items.remove(position)
  call.skipped_items_pages = {}
  selection_progress.remove_item(position)
  local members = {skipped_items.member('', position)}
  if any_named() then
    for i, subid in ipairs(selection_progress.all()) do members[i + 1] = skipped_items.member(subid, position) end
  end
  redis.call('ZREM', key.skipped, unpack(members))
end

-- Whether an item with a lower priority than the default is here.
function skipped_items.has_low_priority()
  return redis.call('ZLEXCOUNT', key.skipped, '[ ' .. scheduling.USUAL, '(!') > 0
end

function skipped_items.contains(position)
  return redis.call('ZSCORE', key.skipped, skipped_items.member('', position))
end

-- Changes the selector of a subscription, or removes it.
function skipped_items.set_selector(subid, line)
  if (selectors.line(subid) or '') == line then return end
  forget(subid)
  selectors.put(subid, line)
end

-- Turns selection off when no selector and no skipped item is left; returns whether it did.
function skipped_items.finished()
  if redis.call('EXISTS', key.selectors) == 1 or redis.call('EXISTS', key.skipped) == 1 then return false end
  partition.drop('selects')
  return true
end
