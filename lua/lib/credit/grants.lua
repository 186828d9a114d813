-- Credit that a coordinator has granted to this partition: subid -> the number of the last grant taken. A grant with that number or a
-- lower one is void: it was taken already, or the subscription has changed since.
local grants = {}

function grants.last(subid)
  return tonumber(redis.call('HGET', key.grants, subid) or 0)
end

-- Takes a grant; returns false when it is void.
function grants.take(subid, number)
  if tonumber(number) <= grants.last(subid) then return false end
  redis.call('HSET', key.grants, subid, number)
  return true
end

function grants.forget(subid)
  redis.call('HDEL', key.grants, subid)
end
