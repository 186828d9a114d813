#!lua flags=allow-oom
-- Leave due partitions, and the last notices, for the frontends, from a process that cannot send; with `wake` one of them sends a heartbeat
-- at once, and several unread wake-ups count as one. What drains a queue ends here, so it needs no free memory.
-- ARGV: wake most kept_seconds | kind text at
-- RETURNS: ok
for _, row in ipairs(rows) do
  if row.kind == 'due' then
    redis.call('ZADD', key.due, 'LT', row.at, row.text)
  else
    redis.call('RPUSH', key.notices, row.text)
    redis.call('LTRIM', key.notices, -tonumber(arg.most), -1)
    redis.call('EXPIRE', key.notices, arg.kept_seconds)
  end
end
if arg.wake == '1' then
  redis.call('RPUSH', key.wakeup, '1')
  redis.call('LTRIM', key.wakeup, -1, -1)
end
return {'ok'}
