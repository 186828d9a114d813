#!lua
-- Add a node to the children of a collection, if the collection has the incarnation that the caller read, and room. The child's own
-- record decides: an entry here without that record's consent means nothing.
-- ARGV: incarnation child since most
-- RETURNS: ok stale too-many
if redis.call('HGET', key.node, 'incarnation') ~= arg.incarnation then return {'stale'} end
local known = redis.call('ZSCORE', key.children, arg.child)
if not known and redis.call('ZCARD', key.children) >= tonumber(arg.most) then return {'too-many'} end
redis.call('ZADD', key.children, 'NX', arg.since, arg.child)
return {'ok'}
