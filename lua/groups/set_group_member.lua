#!lua flags=allow-oom
-- Add, change or remove a member that leaves the choice of partitions to the service, if the node still has the incarnation that the
-- caller knows. One that has a `former` line is changed only while it has that: it may have left, or asked for something else.
-- Returns how many members there are, and whether this was one.
-- ARGV: incarnation kind subid member former most
-- RETURNS: ok stale too-many
if redis.call('HGET', key.node, 'incarnation') ~= arg.incarnation then return {'stale'} end
local present = redis.call('HGET', key.members, arg.subid)
local was = present and 1 or 0
if arg.kind == 'left' then
  redis.call('HDEL', key.members, arg.subid)
elseif arg.former ~= '' and present ~= arg.former then
  return {'ok', redis.call('HLEN', key.members), was}
elseif was == 0 and redis.call('HLEN', key.members) >= tonumber(arg.most) then
  return {'too-many'}
else
  redis.call('HSET', key.members, arg.subid, arg.member)
end
return {'ok', redis.call('HLEN', key.members), was}
