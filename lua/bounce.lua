#!lua flags=allow-oom
-- Deliveries came back: end their locks at once, count them, and end subscriptions that nothing reaches any more.
-- What a receiver has confirmed does not come back.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries shares heads keyed blocked owners
-- ARGV: now revision frontend sent number retry wants max_bounces | sender position token gone stage
-- RETURNS: ok stale gone deleted | ok lock-lost
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries shares heads keyed blocked owners
--- @include finish bounces jids
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local flight = flights.at({row.position})[1]
  -- Whoever forges an error message gives back at most what it holds itself.
  if flight and row.token == flight.token and jids.covers(flight.jid, row.sender)
    and row.stage == unconfirmed.of(row.position) then
    bounces.take(flight, '', row.gone == '1')
    results[i] = {'ok'}
  else
    results[i] = {'lock-lost'}
  end
end
return finish.reply(results, disown.lost, math.max(ending.freed, 1))
