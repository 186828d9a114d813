#!lua flags=allow-oom
-- Remove a node's record, unless it has changed since the caller read it.
-- ARGV: incarnation revision
-- RETURNS: ok stale
local incarnation, revision = unpack(redis.call('HMGET', key.node, 'incarnation', 'revision'))
if incarnation ~= arg.incarnation or revision ~= arg.revision then return {'stale'} end
redis.call('UNLINK', key.node, key.options, key.affiliations, key.members, key.pending, key.children)
return {'ok'}
