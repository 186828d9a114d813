-- How a subscription enters a partition.
-- NEEDS: meta resting
--- @include partition subscriptions
local enrol = {}

-- Writes it; a new one rests until its credit is settled.
function enrol.put(subscriber, new)
  if new then redis.call('ZADD', key.resting, 0, subscriber.subid) end
  subscriptions.put(subscriber)
  if subscriber.qos ~= 'unacknowledged' and not partition.confirms then
    redis.call('HSET', key.meta, 'confirms', '1')
    partition.confirms = true
  end
end
