-- What a coordinator knows of a subscriber beside its credit: how much of it other partitions use, the number of the registration
-- that is under way (0: none), and of a collection which of its nodes the subscription is for. What is used outlives the
-- subscription, as locks do.
local usage = {}

function usage.read(subid)
  local used, registering, scope = string.match(redis.call('HGET', key.usage, subid) or '0 0 ', '^(%d+) (%d+) (.*)$')
  return {used = tonumber(used), registering = registering, scope = scope}
end

function usage.write(subid, known)
  if known.used == 0 and known.registering == '0' and known.scope == '' then
    redis.call('HDEL', key.usage, subid)
  else
    redis.call('HSET', key.usage, subid, string.format('%d %s %s', known.used, known.registering, known.scope))
  end
end

-- The subscription has ended.
function usage.leave(subid)
  local known = usage.read(subid)
  known.registering, known.scope = '0', ''
  usage.write(subid, known)
end
