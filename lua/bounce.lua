#!lua flags=allow-oom
-- A delivery came back: end its lock at once (Q18), count it, and end the subscription when no later one can arrive (P30).
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal
-- ARGV: now revision frontend sent number max_bounces | sender position token gone
-- RETURNS: ok stale gone deleted | ok lock-lost
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal
--- @include finish leave jids
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local flight = flights.at({row.position})[1]
  -- Whoever forges an error message gives back at most what it holds itself.
  if flight and row.token == flight.token and jids.covers(flight.jid, row.sender) then
    ending.release(flight, 'bounced', {})
    writes.flush()
    local subscriber = subscriptions.get(flight.subid)
    if subscriber then
      subscriber.bounces = subscriber.bounces + 1
      subscriptions.put(subscriber)
      if row.gone == '1' or subscriber.bounces >= tonumber(arg.max_bounces) then
        leave.remove(flight.subid)
        leave.release(flight.subid, 'bounced', 'gone')
      end
    end
    results[i] = {'ok'}
  else
    results[i] = {'lock-lost'}
  end
end
return finish.reply(results, {}, math.max(ending.freed, 1))
