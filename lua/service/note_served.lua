#!lua flags=allow-oom
-- Note partitions that may hand something to a frontend: whoever takes over from it looks at these. Remove up to a thousand notes that are
-- older than `old_seconds`, if that is given. The notes of a frontend that writes none any more go after `keep_seconds`. Also without
-- memory: what a frontend hands out frees some.
-- ARGV: now keep_seconds old_seconds | partition
-- RETURNS: ok
local now = clock.now()
for _, row in ipairs(rows) do redis.call('ZADD', key.served_partitions, now, row.partition) end
if arg.old_seconds ~= '' then
  local old = redis.call('ZRANGEBYSCORE', key.served_partitions, '-inf', now - arg.old_seconds * 1000, 'LIMIT', 0, 1000)
  if #old > 0 then redis.call('ZREM', key.served_partitions, unpack(old)) end
end
redis.call('EXPIRE', key.served_partitions, arg.keep_seconds)
return {'ok'}
