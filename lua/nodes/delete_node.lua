#!lua flags=allow-oom
-- Remove a node's record, if it still has the incarnation that the caller deleted.
-- ARGV: incarnation
-- RETURNS: ok stale
if redis.call('HGET', key.node, 'incarnation') ~= arg.incarnation then return {'stale'} end
redis.call('UNLINK', key.node, key.options, key.affiliations, key.members, key.pending, key.children)
return {'ok'}
