#!lua flags=allow-oom
-- Say that a frontend lives, note when partitions next need a visit, and learn who has lapsed and what is due.
-- A due partition is taken by being removed: should its taker die, the survivors visit every partition.
-- The answer tells the frontend's beat before: if that is another than it knows of, Redis has lost what came since. It ends
-- with notices that a process which cannot send has left to be told, with who has disconnected this frontend, and, for one that
-- cannot send, with how many live. One that is to end is given nothing to do and does not count as heard; but what it hands out
-- until it has ended is to be made up for. One without a name cannot send: it leaves all that to the frontends, and what is due
-- as long as any lives. `beaten` is when this one beat last, as far as it knows: whoever is disconnected no longer stands there.
-- Nodes that something has happened to are noted for those who measure them.
-- ARGV: now frontend lapse_ms most beaten | kind name at
-- RETURNS: ok
local now = clock.now()
local sends, since = arg.frontend ~= '', now - tonumber(arg.beaten)
-- One command tells the beat before and, if that is as it should be, writes this one: an idle frontend does little else.
local after = sends and redis.call('ZADD', key.frontends, 'XX', 'INCR', since, arg.frontend)
local before = after and string.format('%.0f', after - since)
local by = sends and (before ~= arg.beaten or before == '0') and string.match(redis.call('HGET', key.disconnected, arg.frontend) or '', ' (.*)$')
if by then
  redis.call('ZADD', key.frontends, before or now, arg.frontend)
elseif sends and before ~= arg.beaten then
  redis.call('ZADD', key.frontends, now, arg.frontend)
end
for _, row in ipairs(rows) do
  if row.kind == 'due' then
    local known = redis.call('ZSCORE', key.due, row.name)
    if not known or tonumber(row.at) < tonumber(known) then redis.call('ZADD', key.due, row.at, row.name) end
  elseif row.kind == 'changed' then
    redis.call('ZADD', key.changed, now, row.name)
  elseif row.kind == 'rescued' then
    local seen = redis.call('ZSCORE', key.frontends, row.name)
    if seen == '0' then
      -- Disconnected, and it may live: what it has handed out since then is looked for once more.
      redis.call('ZADD', key.frontends, now, row.name)
    elseif seen and tonumber(seen) <= now - tonumber(arg.lapse_ms) then redis.call('ZREM', key.frontends, row.name) end
  end
end
if by then return {'ok', now, {}, {}, before or '0', {}, by, 1} end
local alive = sends and 1 or redis.call('ZCOUNT', key.frontends, string.format('(%.0f', now - tonumber(arg.lapse_ms)), '+inf')
local lapsed = sends and redis.call('ZRANGEBYSCORE', key.frontends, '-inf', now - tonumber(arg.lapse_ms), 'LIMIT', 0, 50) or {}
local most = (sends or alive == 0) and tonumber(arg.most) or 0
local due = redis.call('ZRANGEBYSCORE', key.due, '-inf', now, 'LIMIT', 0, most)
if #due > 0 then redis.call('ZREM', key.due, unpack(due)) end
local notices = sends and redis.call('LPOP', key.notices, tonumber(arg.most)) or {}
return {'ok', now, lapsed, due, before or '0', notices, '', alive}
