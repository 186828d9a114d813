#!lua flags=no-writes
-- Look at items without touching them: those named by rows, or the first `limit` in order; cut at `max_bytes` of payload.
-- KEYS: meta log index replaced ready delayed inflight history handover keyed
-- ARGV: now revision number limit max_bytes | item
-- RETURNS: ok stale gone deleted
-- WRITES:
--- @include partition items flights
local refusal = partition.load()
if refusal then return refusal end
local places, more, bytes, results, wanted = {}, 0, 0, {}, {}
if #rows > 0 then
  local ids = {}
  for i, row in ipairs(rows) do
    ids[i], wanted[row.item] = row.item, true
  end
  local found = items.find(ids)
  for i = 1, #ids do places[#places + 1] = found[i] or nil end
else
  local limit = tonumber(arg.limit)
  for _, raw in ipairs(redis.call('XRANGE', key.log, '-', '+', 'COUNT', limit + 1)) do places[#places + 1] = raw[1] end
  if #places > limit then
    places[#places], more = nil, 1
  end
end
local flying = flights.at(places)

local function look(position, flight)
  if flight then return entries.get(flight.log_id), 'locked' end
  if redis.call('HEXISTS', key.handover, position) == 1 then return entries.current(position), 'dying' end
  return items.waiting(position), redis.call('ZSCORE', key.delayed, position) and 'delayed' or 'waiting'
end

for i, position in ipairs(places) do
  local entry, state = look(position, flying[i])
  local name = entry and items.name(position, entry)
  if entry and (#rows == 0 or wanted[name]) then
    bytes = bytes + #entry.body
    if bytes > tonumber(arg.max_bytes) and #results > 0 then
      more = 1
      break
    end
    results[#results + 1] = {name, state, entry.by,
      tonumber((positions.split(entry.log_id))), entry.body}
  end
end
return {'ok', results, {}, {}, {}, 0, more, partition.token}
