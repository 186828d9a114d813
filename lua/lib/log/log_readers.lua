-- Readers of the log: subid -> `position committed frontend:first:sequence:last …`. Entries up to the position were delivered, and the reader
-- has confirmed those up to `committed`; each frontend has to send some of those between, by sequences from `first` to `sequence`, up to the
-- entry `last`.
local log_readers = {}

function log_readers.read(subid, line)
  local position, committed, owed = string.match(line, '^(%S+) (%S+)(.*)$')
  local reader = {subid = subid, position = position, committed = committed, owed = {}}
  for frontend, first, sequence, last in string.gmatch(owed, ' ([^ :]+):(%d+):(%d+):(%S+)') do
    reader.owed[frontend] = {first = tonumber(first), sequence = tonumber(sequence), last = last}
  end
  return reader
end

-- A partition without readers so far is not searched.
function log_readers.get(subid)
  local line = call.partition_before.streams and redis.call('HGET', key.readers, subid)
  return line and log_readers.read(subid, line) or nil
end

-- Returns a sender's reader: that of its full JID, or else of its bare one.
function log_readers.by_sender(subids)
  local full, bare = jids.subids(subids)
  return log_readers.get(full) or log_readers.get(bare)
end

function log_readers.put(reader)
  local line = {reader.position, reader.committed}
  for frontend, owed in pairs(reader.owed) do
    -- What is confirmed has arrived.
    if positions.after(owed.last, reader.committed) then
      line[#line + 1] = string.format('%s:%d:%d:%s', frontend, owed.first, owed.sequence, owed.last)
    end
  end
  redis.call('HSET', key.readers, reader.subid, table.concat(line, ' '))
end
