#!lua flags=allow-oom
-- Register the partitions below a collection with its coordinator. Each gets a number that no other ever has, also when Redis has lost
-- its last second. Deleted partitions are removed. Returns how many are new, and all registered ones.
-- ARGV: now revision most | partition gone
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local added, gone = 0, false
local room = tonumber(arg.most) - redis.call('HLEN', key.pool_partitions)
for _, row in ipairs(rows) do
  if row.gone ~= '' then
    room, gone = room + redis.call('HDEL', key.pool_partitions, row.partition), true
  elseif room > 0 and redis.call('HEXISTS', key.pool_partitions, row.partition) == 0 then
    redis.call('HSET', key.pool_partitions, row.partition, string.format('%d', partition.next_number()))
    room, added = room - 1, added + 1
  end
end
local registered = redis.call('HGETALL', key.pool_partitions)
if gone then coordinator.retain(registered) end
partition.save()
return respond.results({added, registered})
