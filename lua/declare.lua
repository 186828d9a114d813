#!lua
-- Create a node's record, unless there is one.
-- KEYS: node options affiliations
-- ARGV: incarnation owner created | name value
-- RETURNS: ok node-exists
-- WRITES: node options affiliations
if redis.call('EXISTS', key.node) == 1 then return {'node-exists'} end
redis.call('UNLINK', key.options, key.affiliations)
redis.call('HSET', key.node, 'incarnation', arg.incarnation, 'revision', '1', 'created', arg.created)
for _, row in ipairs(rows) do redis.call('HSET', key.options, row.name, row.value) end
redis.call('HSET', key.affiliations, arg.owner, 'owner')
return {'ok'}
