#!lua
-- Raise a node's revision above that of a partition that is newer than the record: Redis lost a change of the record. The options stay,
-- except for the number of partitions, since the forgotten partitions have items. Returns whether the record was behind.
-- ARGV: now incarnation revision partitions
-- RETURNS: ok stale
local node = redis.call('HMGET', key.node, 'incarnation', 'revision')
if node[1] ~= arg.incarnation then return {'stale'} end
local options = redis.call('HMGET', key.options, 'stanzaq#partitions', 'stanzaq#partitions_before')
local count = options[1] or '1'
local fewer, older = tonumber(count) < tonumber(arg.partitions), tonumber(node[2]) < tonumber(arg.revision)
if fewer then
  local before = (options[2] and options[2] .. ' ' or '') .. count
  redis.call('HSET', key.options, 'stanzaq#partitions', arg.partitions, 'stanzaq#partitions_before', before)
end
if fewer or older then revisions.raise(math.max(tonumber(node[2]), tonumber(arg.revision))) end
return {'ok', (fewer or older) and 1 or 0}
