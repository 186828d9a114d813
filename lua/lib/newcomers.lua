-- How a subscriber takes its seat, or changes what it asked for.
-- NEEDS: meta subscribers resting
--- @include partition subscriptions ending
local newcomers = {}

-- Whether it has a seat already, or there is one.
function newcomers.room(subid)
  return subscriptions.get(subid) or redis.call('HLEN', key.subscribers) < tonumber(arg.max_subscribers)
end

-- `row` has subid, jid, credit and qos, which is left as it is when empty; gives the qos.
function newcomers.seat(row)
  local subscriber = subscriptions.get(row.subid)
  if not subscriber then redis.call('ZADD', key.resting, 0, row.subid) end
  local qos = row.qos ~= '' and row.qos or subscriber.qos
  subscriptions.put({subid = row.subid, jid = row.jid, limit = tonumber(row.credit), bounces = 0, qos = qos})
  if qos ~= 'unacknowledged' and not partition.confirms then
    redis.call('HSET', key.meta, 'confirms', '1')
    partition.confirms = true
  end
  ending.touched[row.subid] = true
  return qos
end
