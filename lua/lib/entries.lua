-- Entries of the log: `by`, `body`, `id` unless the service made it, `key` when it belongs to a group, `hints` when its publisher
-- asked for any, and `at` on a later version of an item: the position it belongs to. The FIFO cursor passes over entries with `at`.
-- NEEDS: log replaced
--- @include partition positions
local entries = {}
local PLAIN, NAMES = {}, {id = 'item', key = 'key', at = 'at', hints = 'hints'}

function entries.read(raw)
  local values = raw[2]
  -- `by` and `body` always come first; the names stand in Redis for the SRE's eyes (and cost nothing: a stream stores
  -- repeated field names once).
  local entry = {log_id = raw[1], by = values[2], body = values[4], item = '', key = '', at = '', hints = ''}
  for i = 5, #values, 2 do entry[NAMES[values[i]]] = values[i + 1] end
  return entry
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

local function optional(item, group, at, hints)
  if item == '' and group == '' and at == '' and hints == '' then return PLAIN end
  local fields = {}
  local function put(name, value)
    if value ~= '' then fields[#fields + 1], fields[#fields + 2] = name, value end
  end
  put('id', item)
  put('key', group)
  put('at', at)
  put('hints', hints)
  return fields
end

-- `row` has `item`, `key`, `by`, `body` and `hints`; `at` is the position of the item that it is a later version of, or empty.
function entries.append(row, at)
  -- Never below the tail: XADD would refuse, and a clock that steps back must not stop a queue.
  local tail_ms = positions.split(partition.tail)
  local at_once = string.format('%d-*', math.max(partition.now, tail_ms))
  local log_id = redis.call('XADD', key.log, at_once, 'by', row.by, 'body', row.body,
    unpack(optional(row.item, row.key, at, row.hints)))
  partition.tail = log_id
  return log_id
end
