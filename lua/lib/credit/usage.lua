-- A coordinator's record of a subscriber beside its credit: how much of it other partitions use, the number of the registration under way
-- (0: none), and in a collection the nodes that the subscription is for. Usage outlives the subscription, as locks do.
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

-- Resets the record when the subscription has ended.
function usage.leave(subid)
  local known = usage.read(subid)
  known.registering, known.scope = '0', ''
  usage.write(subid, known)
end
