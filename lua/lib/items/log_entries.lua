-- Entries of the log: `by`, `body`, `id` unless the service made it, `key` when it belongs to a group, `hints` when its publisher
-- asked for any, and `at` on a later version of an item: the position it belongs to. The FIFO cursor passes over entries with `at`.
-- CALL: seen = 0, cost = 0, next = nil, new = nil, before = nil, given = 0
-- `new` are the entries that this call has appended, after the place `before`, as long as they are all that stands there; `given` is how
-- many of them have been handed on. They need not be read again.
local log_entries = {FIRST = 8}
local PLAIN, ID, NAMES = {}, 'id', {id = 'item', key = 'key', at = 'at', hints = 'hints'}

function log_entries.read(raw)
  local values = raw[2]
  -- `by` and `body` always come first; the names stand in Redis for the SRE's eyes (and cost nothing: a stream stores
  -- repeated field names once).
  local cost = 0.5 + #values[4] / budget.PAGE
  call.budget_spent, call.log_entries_cost = call.budget_spent + cost, call.log_entries_cost + cost
  call.log_entries_seen = call.log_entries_seen + 1
  -- Two more come to these where it waits: a table of nine takes twice the memory and time.
  local entry = {log_id = raw[1], by = values[2], body = values[4], item = '', key = '', hints = ''}
  for i = 5, #values, 2 do entry[NAMES[values[i]]] = values[i + 1] end
  return entry
end

function log_entries.get(log_id)
  local found = redis.call('XRANGE', key.log, log_id, log_id)
  return found[1] and log_entries.read(found[1]) or nil
end

function log_entries.replacement(position)
  return seldom.any() and redis.call('HGET', key.replaced, position) or nil
end

-- The entry whose payload stands for the item now: a replaced item keeps its position (X1).
function log_entries.current(position)
  return log_entries.get(log_entries.replacement(position) or position)
end

local function optional(item, group, at, hints)
  if group == '' and at == '' and hints == '' then return item == '' and PLAIN or {ID, item} end
  local fields = {}
  local function put(name, value)
    if value ~= '' then fields[#fields + 1], fields[#fields + 2] = name, value end
  end
  put(ID, item)
  put('key', group)
  put('at', at)
  put('hints', hints)
  return fields
end

-- How many of `count` entries to read at once: not many more than the budget has room for, by the size of those read before, since
-- a body cannot be left out.
function log_entries.fit(count)
  local room = log_entries.FIRST
  if call.log_entries_seen > 0 then room = math.floor((budget.WORK - call.budget_spent) * call.log_entries_seen / call.log_entries_cost) end
  return math.min(count, math.max(room, 1))
end

-- Up to `count` entries from one place to another, the last ones first with `back`; gives whether there are no more, too.
function log_entries.range(from, to, count, back)
  local asked = log_entries.fit(count)
  local found = back and redis.call('XREVRANGE', key.log, to, from, 'COUNT', asked)
    or redis.call('XRANGE', key.log, from, to, 'COUNT', asked)
  for i = 1, #found do found[i] = log_entries.read(found[i]) end
  return found, #found < asked
end

-- Up to `count` entries after a place; gives whether there are no more, too.
function log_entries.after(place, count)
  local new, given = call.log_entries_new, call.log_entries_given
  if not new or place ~= (given == 0 and call.log_entries_before or new[given].log_id) then
    return log_entries.range('(' .. place, '+', count)
  end
  call.log_entries_given = math.min(given + count, #new)
  return {unpack(new, given + 1, call.log_entries_given)}, call.log_entries_given == #new
end

-- Some of what this call has appended may not stand in the log any more.
function log_entries.forget_new()
  call.log_entries_new = false
end

-- `row` has `item`, `key`, `by`, `body` and `hints`; `at` is the position of the item that it is a later version of, or empty.
function log_entries.append(row, at)
  call.budget_spent = call.budget_spent + 0.5 + #row.body / budget.PAGE
  if not call.log_entries_next then
    -- Never below the tail: XADD would refuse, and a clock that steps back must not stop a queue.
    local tail_ms = positions.split(call.partition_tail)
    call.log_entries_next = string.format('%d-*', math.max(call.partition_now, tail_ms))
  end
  local log_id = redis.call('XADD', key.log, call.log_entries_next, 'by', row.by, 'body', row.body,
    unpack(optional(row.item, row.key, at, row.hints)))
  if call.log_entries_new == nil then call.log_entries_new, call.log_entries_before = {}, call.partition_tail end
  if at ~= '' then log_entries.forget_new() end
  if call.log_entries_new then
    row.log_id = log_id
    call.log_entries_new[#call.log_entries_new + 1] = row
  end
  call.partition_tail = log_id
  return log_id
end
