#!lua flags=no-writes
-- List items without changing them: those named by rows, or the first `limit` after the position `after`, or with `backwards` the last
-- ones before `before`; cut at `max_bytes` of payload. Returns the number of items, the last position looked at unless it reached the
-- end, and the items in order. With `subids` it also returns their subscriptions, where a JID may have several.
-- ARGV: now revision number limit max_bytes after before backwards subids | item
-- RETURNS: ok(count last items(item state publisher published_ms body place progress) [subids]) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local places, more, bytes, results, wanted, reached = {}, 0, 0, {}, {}, ''
if #rows > 0 then
  local ids = {}
  for i, row in ipairs(rows) do
    ids[i], wanted[row.item] = row.item, true
  end
  local found = items.positions_of(ids)
  for i = 1, #ids do places[#places + 1] = found[i] or nil end
else
  local limit = tonumber(arg.limit)
  places = item_listing.page(limit + 1)
  if call.item_listing_cut and #places > 0 then more, reached = 1, positions.item_id(places[#places]) end
  while #places > limit do
    places[#places], more, reached = nil, 1, places[limit] and positions.item_id(places[limit]) or ''
  end
end
local flying = inflight.get_many(places)

local function look(position, flight)
  if flight then return log_entries.get(flight.log_id), 'locked' end
  if redis.call('HEXISTS', key.outbox_items, position) == 1 then return log_entries.current(position), 'dying' end
  if call.partition_options.log_only then return log_entries.get(position), 'kept' end
  if dependents.text(position) then return items.waiting(position), 'dependent' end
  return items.waiting(position), redis.call('ZSCORE', key.delayed, position) and 'delayed' or 'waiting'
end

for i, position in ipairs(places) do
  local entry, state = look(position, flying[i])
  local name = entry and items.name(position, entry)
  if entry and (#rows == 0 or wanted[name]) then
    bytes = bytes + #entry.body
    if bytes > tonumber(arg.max_bytes) and #results > 0 then
      more, reached = 1, positions.item_id(places[i - 1])
      break
    end
    table.insert(results, call.item_listing_back and 1 or #results + 1, {name, state, entry.by,
      tonumber((positions.split(entry.log_id))), entry.body, positions.item_id(position), flying[i] and progress.of(position) or ''})
  end
end
local count = redis.call('XLEN', key.log) - redis.call('HLEN', key.replaced) - redis.call('HLEN', key.successors)
if not call.partition_options.log_only then count = count - call.partition_kept end
local theirs = {}
for subid in string.gmatch(call.partition_before.multi and arg.subids or '', '%d+') do
  for _, each in ipairs(subscription_ids.existing(subid)) do theirs[#theirs + 1] = each end
end
return respond.results({count, reached, results, theirs[1] and theirs or nil}, 0, more)
