-- What waits, in order: `ready` (left FIFO order and may go out), then the log from the cursor on.
-- NEEDS: ready delayed log
--- @include partition writes positions entries history ordering passed
local waiting = {}

-- Moves what is due from `delayed` to `ready`; bounded, the rest follows with the next script.
function waiting.promote()
  local due = redis.call('ZRANGEBYSCORE', key.delayed, '-inf', partition.now, 'LIMIT', 0, 200)
  for _, position in ipairs(due) do writes.add('ZADD', key.ready, positions.place(position), position) end
  if #due > 0 then redis.call('ZREM', key.delayed, unpack(due)) end
  writes.flush()
end

local function from_ready(count, taken)
  while count > 0 and ordering.skipped < ordering.MOST do
    local out = redis.call('ZRANGE', key.ready, 0, count - 1)
    local last = #out < count
    for _, position in ipairs(out) do
      local entry = entries.current(position)
      -- Its group is its first version's.
      local first = partition.ordered and entry and entry.log_id ~= position and entries.get(position) or entry
      -- Nothing but a hand at redis-cli removes an entry that waits: such an item is passed over.
      if entry and ordering.admits(position, first.key) then
        entry.position, entry.past = position, history.of(position)
        taken[#taken + 1] = entry
        count = count - 1
      end
    end
    if #out > 0 then redis.call('ZREM', key.ready, unpack(out)) end
    if last then return end
  end
end

local function from_log(count, taken)
  while count > 0 and partition.cursor ~= partition.tail and ordering.skipped < ordering.MOST do
    -- Where many may be passed over, they are not read one by one.
    local most = partition.ordered and math.max(count, 100) or count
    local found = redis.call('XRANGE', key.log, '(' .. partition.cursor, '+', 'COUNT', most)
    if #found == 0 then partition.cursor = partition.tail end
    for i = 1, #found do
      local entry, position = entries.read(found[i]), found[i][1]
      partition.cursor = position
      -- A version: retention keeps those of items that are done as well, and there may be any number of them.
      if entry.at ~= '' then
        ordering.skipped = ordering.skipped + 1
      elseif ordering.admits(position, entry.key) then
        local replacement = entries.replacement(position)
        entry = replacement and entries.get(replacement) or entry
        entry.position, entry.past = position, history.NONE
        taken[#taken + 1] = entry
        count = count - 1
        if count == 0 then break end
      end
    end
  end
end

-- Takes up to `count` items out of the waiting, as entries with their `position` and their `past`, but for those passed over.
function waiting.next(count)
  local taken = {}
  from_ready(count, taken)
  from_log(count - #taken, taken)
  return taken
end

-- These too, and first; the caller gives each of them a lock.
function waiting.take(count)
  local taken = {}
  for _, position in ipairs(partition.selects and passed.after('', '', count) or {}) do
    local entry = entries.current(position)
    passed.remove(position)
    if entry then
      entry.position, entry.past = position, history.of(position)
      taken[#taken + 1] = entry
    end
  end
  for _, entry in ipairs(waiting.next(count - #taken)) do taken[#taken + 1] = entry end
  return taken
end
