-- How a subscriber leaves, and how all that it holds is given back at once.
-- NEEDS: subscribers turns resting held
--- @include writes flights credit ending owner epochs
local leave = {CHUNK = 300, lost = {}}

-- Frees the partition if it is this subscriber's. Its group's epoch begins anew, or is `kept` until the lease would have
-- ended: a connection that is lost is not closed by its owner (EX11). With a `reason` the owner is to be told (E28).
local function disown(subid, kept, reason)
  local who = owner.get()
  if not who or who.subid ~= subid then return end
  local epoch = epochs.recorded(who.group)
  if reason then
    leave.lost[#leave.lost + 1] = {'lost', subscriptions.get(subid).jid, who.group, epoch, partition.fence, reason}
  end
  if kept then epochs.put(who.group, epoch, who.lease) else epochs.reset(who.group) end
  owner.drop()
end

function leave.remove(subid, kept, reason)
  disown(subid, kept, reason)
  redis.call('ZREM', key.turns, subid)
  redis.call('ZREM', key.resting, subid)
  return redis.call('HDEL', key.subscribers, subid) == 1
end

-- Gives back up to `CHUNK` items and tells how many are left: one script must not run for long.
function leave.release(subid, kind, reason)
  local places = redis.call('ZRANGEBYSCORE', key.held, subid, subid, 'LIMIT', 0, leave.CHUNK)
  for _, flight in ipairs(flights.at(places)) do
    if flight then ending.release(flight, kind, {reason = reason}) end
  end
  writes.flush()
  return credit.held(subid)
end
