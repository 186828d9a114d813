-- Positions of a partition's items, in order, a page at a time: those after a place, or the last ones before one. A place is
-- `partition-ms-sequence`; of equal positions that of the lower partition comes first.
-- CALL: back = arg.backwards == '1', from, after, to, before, cut
local item_listing = {MOST = 5000}

-- Returns one end of a range of the log for a place, or `beyond` without one, and the place's position.
local function bound(place, beyond)
  local number, position = string.match(place, '^(%d+)%-(%d+%-%d+)$')
  if not position then return beyond, nil end
  local ours, theirs = tonumber(arg.number), tonumber(number)
  local with = beyond == '-' and ours > theirs or beyond == '+' and ours < theirs
  return (with and '' or '(') .. position, position
end

local function within(position)
  local after, before = call.item_listing_after, call.item_listing_before
  return (not after or positions.after(position, after) or (position == after and call.item_listing_from == after))
    and (not before or positions.after(before, position) or (position == before and call.item_listing_to == before))
end

-- Reads no further than the bound of bytes: more would be read in vain. `cut` says that the bound stopped it.
local function log(from, count)
  local to, places, bytes, ended = call.item_listing_to, {}, 0, false
  while #places < count and bytes <= tonumber(arg.max_bytes) and not ended do
    local found
    found, ended = log_entries.range(from, to, count - #places, call.item_listing_back)
    for _, entry in ipairs(found) do
      places[#places + 1], bytes = entry.log_id, bytes + #entry.body
      if call.item_listing_back then to = '(' .. entry.log_id else from = '(' .. entry.log_id end
    end
  end
  call.item_listing_cut = not ended and #places < count
  return places
end

-- Returns positions in `ready` whose scores are their places above `base`: 0, or that of the items in a fair order.
local function ready(count, base)
  local least = base + (call.item_listing_after and positions.place(call.item_listing_after) or 0)
  local most = base + (call.item_listing_before and positions.place(call.item_listing_before) or -fair_order.HERE)
  if call.item_listing_back then return redis.call('ZREVRANGEBYSCORE', key.ready, most, least, 'LIMIT', 0, count) end
  return redis.call('ZRANGEBYSCORE', key.ready, least, most, 'LIMIT', 0, count)
end

-- Returns positions of items that have left the order of the log. Times and keys are in another order than positions, so the first MOST
-- of these are searched each time: if there are more, a page may miss some.
local function elsewhere(count)
  local found = {ready(count, 0), redis.call('ZRANGE', key.delayed, 0, item_listing.MOST - 1),
    redis.call('ZRANGE', key.lock_deadlines, 0, item_listing.MOST - 1), blocked_items.all(item_listing.MOST), {},
    dependents.some(item_listing.MOST), call.partition_before.selects and skipped_items.after('', '', item_listing.MOST) or {}}
  local dying = redis.call('HSCAN', key.outbox_items, 0, 'COUNT', item_listing.MOST)[2]
  for i = 1, #dying, 2 do found[5][#found[5] + 1] = dying[i] end
  local ranked = call.partition_before.hinted and redis.call('ZRANGE', key.by_priority, 0, item_listing.MOST - 1) or {}
  for i, padded in ipairs(ranked) do ranked[i] = scheduling.unpad(padded) end
  found[#found + 1] = ranked
  if call.partition_before.fair_at then found[#found + 1] = ready(count, fair_order.HERE) end
  return found
end

local function sooner(a, b)
  if call.item_listing_back then return positions.after(a, b) end
  return positions.after(b, a)
end

-- Inserts a position into the first `count`, once: a locked item of another priority is in two indexes.
local function put(page, count, position)
  if #page == count and not sooner(position, page[count]) then return end
  local low, high = 1, #page + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sooner(position, page[middle]) then high = middle else low = middle + 1 end
  end
  if page[low - 1] == position then return end
  table.insert(page, low, position)
  page[count + 1] = nil
end

-- Returns up to `count` positions, in the direction of the search. While no finished items are kept, these are the entries of the log.
-- Else it reads the indexes of items, and the log after the cursor.
function item_listing.page(count)
  call.item_listing_from, call.item_listing_after = bound(arg.after, '-')
  call.item_listing_to, call.item_listing_before = bound(arg.before, '+')
  if call.partition_kept == 0 or call.partition_options.log_only then return log(call.item_listing_from, count) end
  local started = call.item_listing_after and positions.after(call.item_listing_after, call.partition_cursor)
  local page = log(started and call.item_listing_from or '(' .. call.partition_cursor, count)
  -- The items before the cursor come after those not read any more.
  if call.item_listing_back and call.item_listing_cut then return page end
  for _, places in ipairs(elsewhere(count)) do
    local first, last, step = 1, #places, 1
    -- Many are in order: the wanted ones come first, and one comparison skips each of the others.
    if call.item_listing_back then first, last, step = last, 1, -1 end
    for i = first, last, step do
      local position = places[i]
      -- After the cursor all items are found in the log.
      if within(position) and not positions.after(position, call.partition_cursor) then put(page, count, position) end
    end
  end
  return page
end
