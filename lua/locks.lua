#!lua flags=no-writes
-- List what subscribers hold, the earliest deadline first within each; at most 1,000 each, the most credit there is.
-- KEYS: meta inflight deadlines held
-- ARGV: now revision | full bare
-- RETURNS: ok stale gone deleted | ok
-- WRITES:
--- @include partition flights
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local places = {}
  for _, subid in ipairs({row.full, row.bare}) do
    for _, member in ipairs(redis.call('ZRANGEBYLEX', key.held, '[' .. subid .. ':', '(' .. subid .. ';', 'LIMIT', 0, 1000)) do
      places[#places + 1] = string.sub(member, #subid + 2)
    end
    if row.full == row.bare then break end
  end
  local held = {}
  local flying = flights.at(places)
  for _, position in ipairs(places) do
    local flight = flying[position]
    held[#held + 1] = {flight.item, tonumber(flight.token), flight.attempt,
      tonumber(redis.call('ZSCORE', key.deadlines, position))}
  end
  table.sort(held, function(a, b) return a[4] < b[4] or (a[4] == b[4] and a[2] < b[2]) end)
  results[i] = {'ok', held}
end
return {'ok', results, {}, {}, {}, 0, 0, partition.token}
