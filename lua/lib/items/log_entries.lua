-- Entries of the log: `by`, `body`, `id` unless the service made it, `key` when it belongs to a group, `hints` with a delay, priority or
-- expiry, and `at` on a later version of an item: the position of that item. The FIFO cursor skips entries with `at`.
-- CALL: seen = 0, cost = 0, next = nil, new = nil, before = nil, given = 0
-- `new` has the entries that this call appended after the position `before`, while nothing else is there; `given` is how many of them
-- were handed out. They need not be read again.
local log_entries = {FIRST = 8}
local PLAIN, ID, NAMES = {}, 'id', {id = 'item', key = 'key', at = 'at', hints = 'hints'}

function log_entries.read(raw)
  local values = raw[2]
  -- `by` and `body` always come first. The field names are for people who look with redis-cli, and cost nothing: a stream stores repeated
  -- names once.
  -- Somebody has added it with redis-cli: it is passed over as a later version of an item is.
  if values[3] ~= 'body' then return {log_id = raw[1], by = '', body = '', item = '', key = '', hints = '', at = raw[1]} end
  local cost = 0.5 + #values[4] / budget.PAGE
  budget.spend(cost)
  call.log_entries_cost = call.log_entries_cost + cost
  call.log_entries_seen = call.log_entries_seen + 1
  -- `ready_queue` adds two fields to these six: a table of nine takes twice the memory and time.
  local entry = {log_id = raw[1], by = values[2], body = values[4], item = '', key = '', hints = ''}
  for i = 5, #values, 2 do
    local name = NAMES[values[i]]
    -- A later version of stanzaq may write more fields.
    if name then entry[name] = values[i + 1] end
  end
  return entry
end

function log_entries.get(log_id)
  local found = redis.call('XRANGE', key.log, log_id, log_id)
  return found[1] and log_entries.read(found[1]) or nil
end

function log_entries.replacement(position)
  return rare_keys.any() and redis.call('HGET', key.replaced, position) or nil
end

-- Returns the entry with the present payload of the item: a replaced item keeps its position (X1).
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

-- Returns how many of `count` entries to read at once: by the size of earlier ones, not many more than the budget allows, since an entry
-- cannot be read without its body.
function log_entries.fit(count)
  local room = log_entries.FIRST
  if call.log_entries_seen > 0 then room = math.floor((budget.WORK - call.budget_spent) * call.log_entries_seen / call.log_entries_cost) end
  return math.min(count, math.max(room, 1))
end

-- Returns up to `count` entries of a range, the last ones first with `back`, and whether there are no more.
function log_entries.range(from, to, count, back)
  local asked = log_entries.fit(count)
  local found = back and redis.call('XREVRANGE', key.log, to, from, 'COUNT', asked)
    or redis.call('XRANGE', key.log, from, to, 'COUNT', asked)
  for i = 1, #found do found[i] = log_entries.read(found[i]) end
  return found, #found < asked
end

-- Returns up to `count` entries after a position, and whether there are no more.
function log_entries.after(place, count)
  local new, given = call.log_entries_new, call.log_entries_given
  if not new or place ~= (given == 0 and call.log_entries_before or new[given].log_id) then
    return log_entries.range('(' .. place, '+', count)
  end
  call.log_entries_given = math.min(given + count, #new)
  return {unpack(new, given + 1, call.log_entries_given)}, call.log_entries_given == #new
end

-- Called when entries that this call appended may have been removed.
function log_entries.forget_new()
  call.log_entries_new = false
end

-- Appends `row`, which has `item`, `key`, `by`, `body` and `hints`; `at` is the position of the item that it is a later version of, or
-- empty.
function log_entries.append(row, at)
  budget.spend(0.5 + #row.body / budget.PAGE)
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
  partition.move_tail(log_id)
  return log_id
end
