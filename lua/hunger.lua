#!lua flags=allow-oom
-- Keep which partitions of a node want credit, how much is locked there, and since when that is so; a row with an empty
-- `locked` is of one that wants none any more. Answers all that do with the ms that they have waited, but for those that nothing
-- was heard of for three seconds.
-- KEYS: hungry
-- ARGV: now | partition locked
-- RETURNS: ok
-- WRITES: hungry
--- @include clock
local now, found = clock.now(), {}
for _, row in ipairs(rows) do
  if row.locked == '' then
    redis.call('HDEL', key.hungry, row.partition)
  else
    local since, locked = string.match(redis.call('HGET', key.hungry, row.partition) or '', '^(%d+) %d+ (%d+)$')
    if locked ~= row.locked then since = string.format('%d', now) end
    redis.call('HSET', key.hungry, row.partition, string.format('%s %d %s', since, now, row.locked))
  end
end
local all = redis.call('HGETALL', key.hungry)
for i = 1, #all, 2 do
  local since, heard, locked = string.match(all[i + 1], '^(%d+) (%d+) (%d+)$')
  if tonumber(heard) > now - 3000 then
    found[#found + 1] = {tonumber(all[i]), tonumber(locked), now - tonumber(since)}
  else
    redis.call('HDEL', key.hungry, all[i])
  end
end
if #found > 0 then redis.call('PEXPIRE', key.hungry, 10000) end
return {'ok', found}
