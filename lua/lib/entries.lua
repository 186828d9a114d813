-- Entries of the log: `by`, `body`, `id` unless the service made it, and `at` on a later version of an item: the position
-- it belongs to. The FIFO cursor passes over entries with `at`.
-- NEEDS: log replaced
--- @include partition positions
local entries = {}

function entries.read(raw)
  local values = raw[2]
  -- Always written in this order; the names stand in Redis for the SRE's eyes (and cost nothing: a stream stores
  -- repeated field names once).
  return {log_id = raw[1], by = values[2], body = values[4], item = values[6] or '', at = values[8] or ''}
end

function entries.get(log_id)
  local found = redis.call('XRANGE', key.log, log_id, log_id)
  return found[1] and entries.read(found[1]) or nil
end

function entries.replacement(position)
  if entries.any_replaced == nil then entries.any_replaced = redis.call('EXISTS', key.replaced) == 1 end
  return entries.any_replaced and redis.call('HGET', key.replaced, position) or nil
end

-- The entry whose payload stands for the item now: a replaced item keeps its position (X1).
function entries.current(position)
  return entries.get(entries.replacement(position) or position)
end

function entries.append(item, by, body, at)
  -- Never below the tail: XADD would refuse, and a clock that steps back must not stop a queue.
  local tail_ms = positions.split(partition.tail)
  local at_once = string.format('%d-*', math.max(partition.now, tail_ms))
  local log_id
  if at ~= '' then
    log_id = redis.call('XADD', key.log, at_once, 'by', by, 'body', body, 'id', item, 'at', at)
  elseif item ~= '' then
    log_id = redis.call('XADD', key.log, at_once, 'by', by, 'body', body, 'id', item)
  else
    log_id = redis.call('XADD', key.log, at_once, 'by', by, 'body', body)
  end
  partition.tail = log_id
  return log_id
end
