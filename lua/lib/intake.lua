-- How a published item enters: whether it may, whether there is room (P17, PX4), and where it goes.
-- NEEDS: log index replaced parked subscribers
--- @include partition writes positions entries retention flights aside items handover jids names once ordering hints
local intake = {}

function intake.prepare(rows)
  local ids, named, places = {}, {}, {}
  for i = 1, #rows do
    if rows[i].item ~= '' then ids[#ids + 1] = rows[i].item end
  end
  -- Done work takes no place.
  intake.known, intake.count = {}, redis.call('XLEN', key.log) - partition.kept
  if #ids == 0 then return end
  local found = items.find(ids)
  for i = 1, #ids do
    if found[i] then named[#named + 1], places[#places + 1] = ids[i], found[i] end
  end
  local flying = flights.at(places)
  for i = 1, #named do
    local id, position, flight = named[i], places[i], flying[i]
    if flight and flight.item == id then
      intake.known[id] = {position = position, flight = flight}
    elseif not flight and items.waiting(position, id) then
      intake.known[id] = {position = position}
    end
  end
end

-- A row that gives subids may publish only while one of them is subscribed (publish model `subscribers`).
function intake.admits(row)
  if row.subids == '' then return true end
  for _, subid in ipairs({jids.subids(row.subids)}) do
    for _, each in ipairs(names.family(subid)) do
      if redis.call('HEXISTS', key.subscribers, each) == 1 then return true end
    end
  end
  return false
end

function intake.repeats(row)
  return once.seen(row.once) or (once.ignores(row) and (intake.known[row.item] ~= nil or once.seen(row.item)))
end

-- The service will give this id to an item that is yet to come: two items of one name could not be told apart (P33).
function intake.foretells(row)
  local position = positions.of_item_id(row.item)
  return position and positions.split(position) >= partition.now and positions.after(position, partition.tail)
end

function intake.room()
  local limit = tonumber(arg.max_items)
  if intake.count < limit then return true end
  -- Versions of one item are several entries: counted exactly only when it matters.
  local versions = redis.call('HLEN', key.replaced) + redis.call('HLEN', key.parked)
  if redis.call('XLEN', key.log) - partition.kept - versions < limit then return true end
  local dead_letter = arg.node_full == 'dead-letter-oldest'
  if arg.node_full == 'reject' or (dead_letter and not partition.dead_letters) then return false end
  local giving = aside.oldest()
  if not giving then return false end
  intake.known[items.name(giving.position, giving)] = nil
  if dead_letter then
    handover.start(giving.position, giving, giving.past.attempts, '', 'node-full')
  else
    items.drop(giving.position, giving)
    ordering.done(giving.position)
  end
  writes.flush()
  return true
end

function intake.append(row)
  local position = entries.append(row, '')
  if row.hints ~= '' then
    partition.turn_on('hinted')
    hints.enter(position, row)
  end
  intake.count = intake.count + 1
  once.remember(row)
  if partition.log_only then
    -- Nothing of a log ever waits: whoever reads it does so at a place of its own.
    partition.cursor = position
    retention.keep(position, #row.body)
  end
  if row.item == '' then return positions.item_id(position) end
  intake.known[row.item] = {position = position}
  writes.add('HSET', key.index, row.item, position)
  return row.item
end
