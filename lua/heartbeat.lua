#!lua flags=allow-oom
-- Say that a frontend lives, note when partitions next need a visit, and learn who has lapsed and what is due.
-- A due partition is taken by being removed: should its taker die, the survivors visit every partition.
-- The answer tells the frontend's beat before: if that is another than it knows of, Redis has lost what came since. It ends
-- with notices that a process which cannot send has left to be told, and with who has disconnected this frontend. One that is
-- to end is given nothing to do and does not count as heard; but what it hands out until it has ended is to be made up for.
-- KEYS: frontends due notices disconnected
-- ARGV: now frontend lapse_ms most | kind name at
-- RETURNS: ok
-- WRITES: frontends due notices
--- @include clock
local now = clock.now()
local before = redis.call('ZSCORE', key.frontends, arg.frontend)
local by = string.match(redis.call('HGET', key.disconnected, arg.frontend) or '', ' (.*)$')
if by then
  redis.call('ZADD', key.frontends, 'NX', now, arg.frontend)
else
  redis.call('ZADD', key.frontends, now, arg.frontend)
end
for _, row in ipairs(rows) do
  if row.kind == 'due' then
    local known = redis.call('ZSCORE', key.due, row.name)
    if not known or tonumber(row.at) < tonumber(known) then redis.call('ZADD', key.due, row.at, row.name) end
  elseif row.kind == 'rescued' then
    local seen = redis.call('ZSCORE', key.frontends, row.name)
    if seen == '0' then
      -- Disconnected, and it may live: what it has handed out since then is looked for once more.
      redis.call('ZADD', key.frontends, now, row.name)
    elseif seen and tonumber(seen) <= now - tonumber(arg.lapse_ms) then redis.call('ZREM', key.frontends, row.name) end
  end
end
if by then return {'ok', now, {}, {}, before or '0', {}, by} end
local lapsed = redis.call('ZRANGEBYSCORE', key.frontends, '-inf', now - tonumber(arg.lapse_ms), 'LIMIT', 0, 50)
local due = redis.call('ZRANGEBYSCORE', key.due, '-inf', now, 'LIMIT', 0, tonumber(arg.most))
if #due > 0 then redis.call('ZREM', key.due, unpack(due)) end
local notices = redis.call('LPOP', key.notices, tonumber(arg.most))
return {'ok', now, lapsed, due, before or '0', notices or {}, ''}
