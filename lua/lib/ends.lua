-- Items whose time to live is over perish: nobody is handed them any more. One in flight may still be acknowledged.
-- NEEDS: ends
-- LAZY: where publishers ask for something
--- @include partition writes entries items history journal flights ordering hints
-- Bounded by count and by bytes: an entry is read with its payload. `count` is how many have perished in this script.
local ends = {LIMIT = 200, BYTES = 1048576, count = 0}

-- The record is as that of an attempt which took no time.
local function perish(position, entry, attempts)
  local line = flights.line(flights.NOBODY, '0', '0', string.format('%d', attempts + 1), '0', entry.log_id, partition.stamp,
    #entry.body, flights.holder(''), items.name(position, entry))
  journal.closed('perished', {line = line}, '')
  items.drop(position, entry)
  ordering.done(position)
  ends.count = ends.count + 1
end

-- Whether an item that is next has perished instead; it goes with the next flush.
function ends.met(position, entry, attempts)
  local at = hints.of(entry).ends
  if at == 0 or at > partition.now then return false end
  perish(position, entry, attempts)
  return true
end

function ends.sweep()
  local bytes = 0
  for _, position in ipairs(redis.call('ZRANGEBYSCORE', key.ends, '-inf', partition.now, 'LIMIT', 0, ends.LIMIT)) do
    if bytes >= ends.BYTES then break end
    local entry = entries.current(position)
    if entry then
      bytes = bytes + #entry.body
      perish(position, entry, history.of(position).attempts)
    else
      -- A hand at redis-cli has removed it.
      hints.forget(position)
    end
  end
  writes.flush()
end
