#!lua flags=allow-oom
-- Record that a frontend lives and when partitions are next due; return dead frontends and due partitions. Taking a due partition removes
-- it from the list: if the taker dies, the others sweep every partition. The reply has the frontend's last heartbeat: if it is not
-- `beaten`, the one that the frontend remembers, Redis has lost data since. The reply ends with notices that a process without
-- connections left here, with who disconnected this frontend, and with the number of live frontends. A disconnected frontend gets no work
-- and does not count as live, but others still take over what it hands out until it ends. A process without a name cannot send: it gets
-- no notices and no dead frontends, and due partitions only while no frontend lives. Nodes that changed are recorded for whoever measures
-- them. Each dead frontend is followed by the age, in ms, of what may not be sent of it: all that was handed to a frontend before
-- `sent_until`, by the clock here, is. Last come the format of the store and the least one that may use it, 0 if they are lost.
-- ARGV: now frontend dead_after_ms most beaten sent_until | kind name at
-- RETURNS: ok(now_ms dead(name age_ms) due beat_ms notices by live format least)
local now = clock.now()
local sends, since = arg.frontend ~= '', now - tonumber(arg.beaten)
-- One command reads the last heartbeat and, if it is `beaten`, writes this one: an idle frontend does little else.
local after = sends and redis.call('ZADD', key.frontends, 'XX', 'INCR', since, arg.frontend)
local before = after and string.format('%.0f', after - since)
local by = sends and (before ~= arg.beaten or before == '0') and string.match(redis.call('HGET', key.disconnected, arg.frontend) or '', ' (.*)$')
if by then
  redis.call('ZADD', key.frontends, before or now, arg.frontend)
elseif sends and before ~= arg.beaten then
  redis.call('ZADD', key.frontends, now, arg.frontend)
end
if arg.sent_until ~= '' then redis.call('HSET', key.sent_until, arg.frontend, arg.sent_until) end
for _, row in ipairs(rows) do
  if row.kind == 'due' then
    redis.call('ZADD', key.due, 'LT', row.at, row.name)
  elseif row.kind == 'changed' then
    -- A node that has been deleted since left both lists.
    if redis.call('ZSCORE', key.all_nodes, row.name) then redis.call('ZADD', key.changed, now, row.name) end
  elseif row.kind == 'taken-over' then
    local seen = redis.call('ZSCORE', key.frontends, row.name)
    if seen == '0' then
      -- Disconnected, but perhaps still alive: look once more for what it has handed out since.
      redis.call('ZADD', key.frontends, now, row.name)
    elseif seen and tonumber(seen) <= now - tonumber(arg.dead_after_ms) then
      redis.call('ZREM', key.frontends, row.name)
      redis.call('HDEL', key.sent_until, row.name)
    end
  end
end
local store = redis.call('HMGET', key.store, 'format', 'least')
local format, least = tonumber(store[1] or 0), tonumber(store[2] or store[1] or 0)
if by then return {'ok', now, {}, {}, before or '0', {}, by, 1, format, least} end
local alive = sends and 1 or redis.call('ZCOUNT', key.frontends, string.format('(%.0f', now - tonumber(arg.dead_after_ms)), '+inf')
local dead = sends and redis.call('ZRANGEBYSCORE', key.frontends, '-inf', now - tonumber(arg.dead_after_ms), 'LIMIT', 0, 50) or {}
for i, name in ipairs(dead) do dead[i] = {name, now - tonumber(redis.call('HGET', key.sent_until, name) or 0)} end
local most = (sends or alive == 0) and tonumber(arg.most) or 0
local due = redis.call('ZRANGEBYSCORE', key.due, '-inf', now, 'LIMIT', 0, most)
if #due > 0 then redis.call('ZREM', key.due, unpack(due)) end
local notices = sends and redis.call('LPOP', key.notices, tonumber(arg.most)) or {}
return {'ok', now, dead, due, before or '0', notices, '', alive, format, least}
