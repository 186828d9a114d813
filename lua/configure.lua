#!lua
-- Replace a node's options, if its record is still the one that the caller read.
-- KEYS: node options
-- ARGV: incarnation revision | name value
-- RETURNS: ok stale
-- WRITES: node options
local node = redis.call('HMGET', key.node, 'incarnation', 'revision')
if node[1] ~= arg.incarnation or node[2] ~= arg.revision then return {'stale'} end
redis.call('UNLINK', key.options)
for _, row in ipairs(rows) do redis.call('HSET', key.options, row.name, row.value) end
redis.call('HINCRBY', key.node, 'revision', 1)
return {'ok'}
