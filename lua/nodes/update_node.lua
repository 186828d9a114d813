#!lua
-- Replace a node's options and its parent, if the record is still at the revision that the caller read. Returns the new revision.
-- ARGV: now incarnation revision parent parent_life | name value
-- RETURNS: ok(revision) stale
local node = redis.call('HMGET', key.node, 'incarnation', 'revision')
if node[1] ~= arg.incarnation or node[2] ~= arg.revision then return {'stale'} end
redis.call('UNLINK', key.options)
for _, row in ipairs(rows) do redis.call('HSET', key.options, row.name, row.value) end
if arg.parent ~= '' then
  redis.call('HSET', key.node, 'parent', arg.parent, 'parent_life', arg.parent_life)
else
  redis.call('HDEL', key.node, 'parent', 'parent_life')
end
return {'ok', revisions.raise(node[2])}
