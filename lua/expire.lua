#!lua flags=allow-oom
-- Do what time asks for: try again what was not confirmed, end locks whose deadline has passed, an owner's lease, and what
-- an attach has left locked; tell which subscriptions are over; hand out what may go, take up dead letters left half-way, let go what of the log is too old.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners leases selectors passed ranked ends
-- ARGV: now revision frontend sent number retry wants max_bounces
-- RETURNS: ok stale gone deleted
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners leases selectors passed ranked ends
--- @include finish tries ownership leases pools
local refusal = partition.load()
if refusal then return refusal end
local repeated, more_due = tries.run()
local late = redis.call('ZRANGEBYSCORE', key.deadlines, '-inf', partition.now, 'LIMIT', 0, 200)
local flying, notices = flights.at(late), {}
for i, position in ipairs(late) do
  local flight = flying[i]
  if flight then
    ending.release(flight, 'expired', {})
    notices[#notices + 1] = {'unlocked', flight.jid, flight.item, tonumber(flight.token), pools.told(flight.subid)}
  else
    writes.add('ZREM', key.deadlines, position)
  end
end
writes.flush()
ownership.lapse()
if owner.get() and owner.get().clearing then ownership.clear('stolen') end
for _, lost in ipairs(disown.notices) do notices[#notices + 1] = lost end
for _, over in ipairs(leases.lapsed()) do notices[#notices + 1] = over end
handover.resume()
journal.trim()
local more_aged = trim.aged()
local reply = finish.reply({}, notices, dispatch.LIMIT)
for _, row in ipairs(repeated) do reply[3][#reply[3] + 1] = row end
if #late == 200 or more_due or more_aged == 1 or (owner.get() and owner.get().clearing) then reply[7] = 1 end
reply[6] = leases.next(reply[6])
return reply
