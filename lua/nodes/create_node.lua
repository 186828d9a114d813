#!lua
-- Create the record of a node, or of a lease over several queues, unless it exists.
-- ARGV: incarnation owner created format parent parent_life destinations | name value
-- RETURNS: ok node-exists
if redis.call('EXISTS', key.node) == 1 then return {'node-exists'} end
redis.call('UNLINK', key.options, key.affiliations, key.children)
redis.call('HSET', key.node, 'incarnation', arg.incarnation, 'revision', '1', 'created', arg.created,
  'creator', arg.owner, 'format', arg.format)
if arg.parent ~= '' then redis.call('HSET', key.node, 'parent', arg.parent, 'parent_life', arg.parent_life) end
if arg.destinations ~= '' then redis.call('HSET', key.node, 'destinations', arg.destinations) end
for _, row in ipairs(rows) do redis.call('HSET', key.options, row.name, row.value) end
redis.call('HSET', key.affiliations, arg.owner, 'owner')
return {'ok'}
