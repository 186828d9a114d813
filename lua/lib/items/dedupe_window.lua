-- Names that take effect once, remembered for a time. Each kind is apart, so that nobody can choose a name of another kind: item
-- ids, tickets that the service gives to publishes, and those of items that come from other nodes.
-- CALL: new = {}
local dedupe_window = {ITEM = 'item ', TICKET = 'ticket ', HANDED = 'handed '}

function dedupe_window.has(kind, name)
  if call.dedupe_window_new[kind .. name] then return true end
  local until_ms = redis.call('ZSCORE', key.seen, kind .. name)
  return until_ms and tonumber(until_ms) > call.partition_now
end

function dedupe_window.keep(kind, name, ms)
  call.dedupe_window_new[kind .. name] = true
  write_buffer.add('ZADD', key.seen, string.format('%.0f', call.partition_now + ms), kind .. name)
  -- Two forgotten for each remembered: the window never grows past what is inside it.
  local old = redis.call('ZRANGEBYSCORE', key.seen, '-inf', call.partition_now, 'LIMIT', 0, 2)
  if #old > 0 then redis.call('ZREM', key.seen, unpack(old)) end
end
