#!lua flags=allow-oom
-- Note partitions that may hand something to a frontend: whoever takes over from it looks at these. The notes of a frontend that writes
-- none any more go after `keep_seconds`. Also without memory: what a frontend hands out frees some.
-- ARGV: keep_seconds | partition
-- RETURNS: ok
for _, row in ipairs(rows) do redis.call('ZADD', key.served_partitions, 0, row.partition) end
redis.call('EXPIRE', key.served_partitions, arg.keep_seconds)
return {'ok'}
