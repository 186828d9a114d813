-- Items on their way to another node: dead letters, and items that an owner moves. They stay in the log until they have arrived.
-- `outbox_items` has a record of each: `attempts jid-length target-length jid target reason`. The JID is of the last holder; for a moved
-- item `>NODE` takes its place, and no JID begins so. The target is where the item may have arrived.
local outbox_items = {}

local function write(attempts, jid, target, reason)
  return string.format('%d %d %d ', attempts, #jid, #target) .. jid .. ' ' .. target .. ' ' .. reason
end

-- Returns attempts, jid, target and reason.
local function read(line)
  local attempts, length, targeted, rest = string.match(line, '^(%d+) (%d+) (%d+) (.*)$')
  local ends = length + 1 + targeted
  return tonumber(attempts), string.sub(rest, 1, length), string.sub(rest, length + 2, ends), string.sub(rest, ends + 2)
end

-- The item leaves the queue: from now on its id is free for a new item. The history of its attempts stays until it has arrived.
function outbox_items.start(position, entry, attempts, jid, reason)
  write_buffer.add('HSET', key.outbox_items, position, write(attempts, jid, '', reason))
  if entry.item ~= '' then write_buffer.add('HDEL', key.index, entry.item) end
  if call.partition_before.hinted then scheduling.remove(position) end
  group_order.remove(position)
  outbox.put('item/' .. position)
end

-- Sets the target of an item: it has certainly arrived nowhere.
function outbox_items.aim(position, target)
  local line = redis.call('HGET', key.outbox_items, position)
  if not line then return end
  local attempts, jid, _, reason = read(line)
  redis.call('HSET', key.outbox_items, position, write(attempts, jid, target, reason))
end

function outbox_items.remove(position)
  if redis.call('HDEL', key.outbox_items, position) == 0 then return end
  redis.call('HDEL', key.history, position)
  local entry = log_entries.current(position)
  if entry then items.erase(position, entry.log_id, '', false) end
end

-- Returns an item and its bytes; one without a target gets its own, or that of dead letters. Nil if it is gone; nil and `held`
-- if its target is one of those.
function outbox_items.read(position, dead_letters, held)
  local line = redis.call('HGET', key.outbox_items, position)
  if not line then return nil end
  local attempts, jid, noted, reason = read(line)
  local target = noted ~= '' and noted or string.match(jid, '^>(.*)$') or dead_letters
  if held[target] then return nil, 'held' end
  local entry = log_entries.current(position)
  if not entry then return nil end
  if noted == '' then redis.call('HSET', key.outbox_items, position, write(attempts, jid, target, reason)) end
  return {items.name(position, entry), entry.by, entry.body, attempts, jid, reason, entry.key, target, attempt_history.lines(position)},
    #entry.body
end
