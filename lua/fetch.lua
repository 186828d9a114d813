#!lua flags=allow-oom
-- Read what subscribers hold who come for it, the oldest locks first: those after the token `after`, cut at `limit` items each
-- and `max_bytes` of payload in all. With a `lease`, which the first partition knows of, one has to last still, and lasts for
-- so many ms from now on; `0` leaves it. Answers until when, the items, whether there are others, and the last token of all: as
-- long as that is the same, nobody has been handed anything.
-- KEYS: meta log replaced inflight deadlines held subscribers leases history
-- ARGV: now revision number limit max_bytes | subid lease after
-- RETURNS: ok stale gone deleted | ok lease-over
-- WRITES: leases
--- @include partition flights entries names leases history
local refusal = partition.load()
if refusal then return refusal end
local bytes, next_due = 0, 0

local function told(flight, entry)
  local attempt = tonumber(flight.attempt)
  return {flight.item, tonumber(flight.token), attempt,
    tonumber(redis.call('ZSCORE', key.deadlines, flight.position) or 0), entry.by, entry.body, entry.key,
    tonumber((positions.split(entry.log_id))), history.tries(flight.position, attempt)}
end

local function held(row)
  local places, found, after = {}, {}, tonumber(row.after)
  for _, subid in ipairs(names.all(row.subid)) do
    for _, position in ipairs(redis.call('ZRANGEBYSCORE', key.held, subid, subid, 'LIMIT', 0, 1000)) do
      places[#places + 1] = position
    end
  end
  for _, flight in ipairs(flights.at(places)) do
    if flight and tonumber(flight.token) > after then found[#found + 1] = flight end
  end
  table.sort(found, function(a, b) return tonumber(a.token) < tonumber(b.token) end)
  return found
end

local function lasts(row)
  if row.lease == '' or arg.number ~= '0' then return true end
  local subscriber = subscriptions.get(row.subid)
  if not subscriber or not subscriptions.pulls(subscriber) or leases.ended(row.subid) then return false end
  if row.lease ~= '0' then leases.put(row.subid, '+' .. row.lease) end
  next_due = leases.next(0)
  return true
end

local results = {}
for i, row in ipairs(rows) do
  results[i] = {'lease-over'}
  if lasts(row) then
    local found, more = {}, 0
    for _, flight in ipairs(held(row)) do
      local entry = bytes < tonumber(arg.max_bytes) and #found < tonumber(arg.limit) and entries.get(flight.log_id)
      if not entry then
        more = 1
        break
      end
      bytes = bytes + #entry.body
      found[#found + 1] = told(flight, entry)
    end
    results[i] = {'ok', leases.of(row.subid), found, more, partition.token}
  end
end
return {'ok', results, {}, {}, {}, next_due, 0, partition.token}
