#!lua
-- Note a node among the children of a collection, if that is of the life that the caller read and has room. The child's own
-- record is the truth: a name noted here is of no child until that says so too.
-- ARGV: incarnation child since most
-- RETURNS: ok stale too-many
if redis.call('HGET', key.node, 'incarnation') ~= arg.incarnation then return {'stale'} end
local known = redis.call('ZSCORE', key.children, arg.child)
if not known and redis.call('ZCARD', key.children) >= tonumber(arg.most) then return {'too-many'} end
redis.call('ZADD', key.children, 'NX', arg.since, arg.child)
return {'ok'}
