#!lua flags=allow-oom
-- Add, change or remove a member that leaves the choice of partitions to the service, if the node still has the incarnation that the
-- caller knows. With a `former` line it is changed or removed only while it has that: it may have left, or asked for something else.
-- Returns how many members there are, and the line that this one had (empty: none).
-- ARGV: incarnation kind subid member former most
-- RETURNS: ok(count member) stale too-many
if redis.call('HGET', key.node, 'incarnation') ~= arg.incarnation then return {'stale'} end
local present = redis.call('HGET', key.members, arg.subid)
if arg.former ~= '' and present ~= arg.former then
  return {'ok', redis.call('HLEN', key.members), present or ''}
elseif arg.kind == 'left' then
  redis.call('HDEL', key.members, arg.subid)
elseif not present and redis.call('HLEN', key.members) >= tonumber(arg.most) then
  return {'too-many'}
else
  redis.call('HSET', key.members, arg.subid, arg.member)
end
return {'ok', redis.call('HLEN', key.members), present or ''}
