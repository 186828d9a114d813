-- What waits, in order: what is more urgent than usual (`ranked`), `ready` (left FIFO order and may go out), the log from the
-- cursor on, and at its end what is less urgent.
-- NEEDS: ready delayed
--- @include partition writes entries history passed ready ranks ranked resting ends taking
-- Of what is due so many are moved in a script, and so many bytes of payload read for it.
local waiting = {DUE = 200, BYTES = 1048576}

-- Moves what is due out of `delayed`, to where it may go out; the rest follows with the next script.
function waiting.promote()
  if partition.hinted then ends.sweep() end
  local due, moved = redis.call('ZRANGEBYSCORE', key.delayed, '-inf', partition.now, 'LIMIT', 0, waiting.DUE), 0
  while moved < #due and resting.bytes < waiting.BYTES do
    moved = moved + 1
    if not (partition.hinted and resting.comes(due[moved])) then writes.add('ZADD', ready.place(due[moved])) end
  end
  if moved > 0 then redis.call('ZREM', key.delayed, unpack(due, 1, moved)) end
  writes.flush()
end

-- Takes up to `count` items out of the waiting, as entries with their `position` and their `past`, but for those passed over.
function waiting.next(count)
  local taken = {}
  if partition.hinted then ranked.take(count, taken, 0, ranks.USUAL) end
  taking.from_ready(count - #taken, taken)
  taking.from_log(count - #taken, taken)
  if partition.hinted and partition.cursor == partition.tail then
    ranked.take(count - #taken, taken, ranks.USUAL, ranks.LAST)
  end
  return taken
end

-- Takes up to `count` of those passed over.
function waiting.again(count, taken)
  for _, position in ipairs(passed.after('', '', count)) do
    local entry, past = entries.current(position), history.of(position)
    passed.remove(position)
    if entry and not (entry.hints ~= '' and ends.met(position, entry, past.attempts)) then
      entry.position, entry.past = position, past
      taken[#taken + 1] = entry
    end
  end
end

-- These too, and first; the caller gives each of them a lock.
function waiting.take(count)
  local taken = {}
  if partition.selects then waiting.again(count, taken) end
  for _, entry in ipairs(waiting.next(count - #taken)) do taken[#taken + 1] = entry end
  return taken
end

-- Whether anything may be there to go out, but for those passed over.
function waiting.any()
  return partition.cursor ~= partition.tail or redis.call('EXISTS', key.ready) == 1
    or partition.hinted and ranks.any(0, ranks.LAST)
end
