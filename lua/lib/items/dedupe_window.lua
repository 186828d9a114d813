-- Names that take effect once, remembered for a time. The kinds are separate, so that nobody can choose a name of another kind: item ids,
-- tickets that the service gives to publishes, and tickets of items from other nodes.
-- CALL: new = nil
local dedupe_window = {ITEM = 'item ', TICKET = 'ticket ', HANDED = 'handed ', SOME = 200}

function dedupe_window.has(kind, name)
  if call.dedupe_window_new and call.dedupe_window_new[kind .. name] then return true end
  local until_ms = redis.call('ZSCORE', key.dedupe, kind .. name)
  return until_ms and tonumber(until_ms) > call.partition_now
end

-- Removes up to `most` names that are not valid any more; returns whether there are more.
function dedupe_window.tidy(most)
  local old = redis.call('ZRANGEBYSCORE', key.dedupe, '-inf', call.partition_now, 'LIMIT', 0, most)
  if #old > 0 then redis.call('ZREM', key.dedupe, unpack(old)) end
  return #old == most
end

function dedupe_window.keep(kind, name, ms)
  call.dedupe_window_new = call.dedupe_window_new or {}
  call.dedupe_window_new[kind .. name] = true
  write_buffer.add('ZADD', key.dedupe, string.format('%.0f', call.partition_now + ms), kind .. name)
  -- Two for each one added: the window never grows past its valid names. Sweeps remove the last ones.
  dedupe_window.tidy(2)
end

-- What used the name did not take effect after all.
function dedupe_window.forget(kind, name)
  write_buffer.add('ZREM', key.dedupe, kind .. name)
end
