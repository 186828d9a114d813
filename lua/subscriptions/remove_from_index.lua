#!lua flags=allow-oom
-- Remove entries from an index of one bare JID: those added no later than `upto` (ms), or with an empty `upto` all whose change is not
-- under way.
-- ARGV: index idle_seconds | member upto
-- RETURNS: ok
local indexes = {nodes = key.nodes, pending_nodes = key.pending_nodes, affiliated = key.affiliated, created_nodes = key.created_nodes}
local index = indexes[arg.index]
for _, row in ipairs(rows) do
  local score = tonumber(redis.call('ZSCORE', index, row.member) or nil)
  if score and (row.upto == '' and score >= 0 or row.upto ~= '' and math.abs(score) <= tonumber(row.upto)) then
    redis.call('ZREM', index, row.member)
    if arg.index == 'nodes' then redis.call('HDEL', key.clients, row.member) end
  end
end
presence.keep()
return {'ok'}
