#!lua
-- Raise a node's revision above that of a partition that is newer than the record: Redis lost a change of the record. The options stay.
-- Returns whether the record was behind.
-- ARGV: now incarnation revision
-- RETURNS: ok(behind) stale
local node = redis.call('HMGET', key.node, 'incarnation', 'revision')
if node[1] ~= arg.incarnation then return {'stale'} end
local older = tonumber(node[2]) < tonumber(arg.revision)
if older then revisions.raise(tonumber(arg.revision)) end
return {'ok', older and 1 or 0}
