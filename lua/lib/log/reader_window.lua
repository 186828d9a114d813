-- How many more entries each reader may get: its credit less its uncommitted entries, counted from `uncommitted` and never stored (`subid
-- position`, all of one score, so they sort as texts). A reader with room is in `readers_ready`, by its position, so the one that lags
-- most comes first. Removing `GONE` entries is one unit of work.
local reader_window = {GONE = 20}

local function member(subid, position)
  return subid .. ' ' .. positions.pad(position)
end

local function whole(subid)
  return '[' .. subid .. ' ', '(' .. subid .. '!'
end

local function remove_uncommitted(from, to)
  budget.spend(redis.call('ZREMRANGEBYLEX', key.uncommitted, from, to) / reader_window.GONE)
end

function reader_window.room(reader)
  local subscriber = subscriptions.get(reader.subid)
  if not subscriber then return 0 end
  return subscriber.limit - redis.call('ZLEXCOUNT', key.uncommitted, whole(reader.subid)), subscriber.jid
end

-- Stores a reader, and puts it into or out of `readers_ready` by its room. Nothing is there for it up to `place`.
function reader_window.save(reader, place)
  log_readers.put(reader)
  if reader_window.room(reader) > 0 then
    redis.call('ZADD', key.readers_ready, positions.place(place), reader.subid)
  else
    redis.call('ZREM', key.readers_ready, reader.subid)
  end
end

function reader_window.hand_out(reader, position)
  redis.call('ZADD', key.uncommitted, 0, member(reader.subid, position))
  reader.position = position
end

function reader_window.is_outstanding(reader, position)
  return redis.call('ZSCORE', key.uncommitted, member(reader.subid, position))
end

-- Commits all entries up to this position; a repeated or earlier commit changes nothing.
function reader_window.commit(reader, position)
  remove_uncommitted('[' .. reader.subid .. ' ', '[' .. member(reader.subid, position))
  if positions.after(position, reader.committed) then reader.committed = position end
end

-- Entries delivered since the last commit may not have arrived: all are delivered again.
function reader_window.rewind(reader)
  remove_uncommitted(whole(reader.subid))
  reader.position, reader.owed = reader.committed, {}
end

function reader_window.forget(subid)
  if not call.partition_before.streams then return false end
  redis.call('ZREM', key.readers_ready, subid)
  remove_uncommitted(whole(subid))
  return redis.call('HDEL', key.readers, subid) == 1
end
