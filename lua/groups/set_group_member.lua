#!lua flags=allow-oom
-- Add, change or remove a member that leaves the choice of partitions to the service, if the node still has the incarnation that the
-- caller knows. One that is to be `changed` and has left is not added again. Returns how many members there are, and whether this was one.
-- ARGV: incarnation kind subid member most
-- RETURNS: ok stale too-many
if redis.call('HGET', key.node, 'incarnation') ~= arg.incarnation then return {'stale'} end
local was = redis.call('HEXISTS', key.members, arg.subid)
if arg.kind == 'left' then
  redis.call('HDEL', key.members, arg.subid)
elseif arg.kind == 'changed' and was == 0 then
  return {'ok', redis.call('HLEN', key.members), was}
elseif was == 0 and redis.call('HLEN', key.members) >= tonumber(arg.most) then
  return {'too-many'}
else
  redis.call('HSET', key.members, arg.subid, arg.member)
end
return {'ok', redis.call('HLEN', key.members), was}
