#!lua flags=allow-oom
-- Keep who takes part in the groups of a node without naming partitions, if the node still is of the life that the
-- caller knows. Answers how many there are, and whether it was one of them.
-- ARGV: incarnation kind subid member most
-- RETURNS: ok stale too-many
if redis.call('HGET', key.node, 'incarnation') ~= arg.incarnation then return {'stale'} end
local was = redis.call('HEXISTS', key.members, arg.subid)
if arg.kind == 'left' then
  redis.call('HDEL', key.members, arg.subid)
elseif was == 0 and redis.call('HLEN', key.members) >= tonumber(arg.most) then
  return {'too-many'}
else
  redis.call('HSET', key.members, arg.subid, arg.member)
end
return {'ok', redis.call('HLEN', key.members), was}
