-- Gathers writes during a script and makes them with one call for each command and key: a call from Lua costs more than a value.
-- CALL: of = {}, order = {}
local write_buffer = {}

local function gatherer(command, name)
  local of_command = call.write_buffer_of[command]
  if not of_command then
    of_command = {}
    call.write_buffer_of[command] = of_command
  end
  local gathered = {command, name, count = 2}
  of_command[name] = gathered
  call.write_buffer_order[#call.write_buffer_order + 1] = gathered
  return gathered
end

-- One value, or a pair of which both belong together (field and value, score and member).
function write_buffer.add(command, name, first, second)
  local of_command = call.write_buffer_of[command]
  local gathered = of_command and of_command[name] or gatherer(command, name)
  local count = gathered.count + 1
  gathered[count] = first
  if second then
    count = count + 1
    gathered[count] = second
  end
  gathered.count = count
end

-- In the order in which each kind was first added. unpack() fails near 8,000 values: 4,000 at once, an even number
-- so that pairs stay together.
function write_buffer.flush()
  local order = call.write_buffer_order
  call.write_buffer_of, call.write_buffer_order = {}, {}
  for _, gathered in ipairs(order) do
    for first = 3, gathered.count, 4000 do
      redis.call(gathered[1], gathered[2], unpack(gathered, first, math.min(first + 3999, gathered.count)))
    end
  end
end
