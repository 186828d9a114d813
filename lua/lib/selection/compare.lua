-- Compares values in a selector: texts, numbers and booleans; nil is UNKNOWN. Must agree with broker/selectors/values.py.
-- CALL: work = 0, numbers
local compare = {MOST_BYTES = 1024, MOST_DIGITS = 64}

-- Counts the work of selecting.
function compare.count(units)
  call.compare_work = call.compare_work + units
end

-- Digits, with a point in or before them.
local function whole(digits)
  return string.find(digits, '^%d+%.?%d*$') or string.find(digits, '^%.%d+$')
end

local function parse(value)
  if type(value) ~= 'string' or #value > compare.MOST_DIGITS then return nil end
  local digits, power = string.match(value, '^[+-]?([%d.]+)(.*)$')
  if not (digits and whole(digits)) or (power ~= '' and not string.find(power, '^[eE][+-]?%d+$')) then return nil end
  return tonumber(value)
end

-- Parsed once: many selectors may ask for the same value.
function compare.number(value)
  if type(value) == 'number' then return value end
  if value == nil then return nil end
  call.compare_numbers = call.compare_numbers or {}
  local known = call.compare_numbers[value]
  if known == nil then
    known = parse(value) or false
    call.compare_numbers[value] = known
  end
  return known or nil
end

-- In a header a boolean is a text.
function compare.truth(value)
  if value == 'true' then return true end
  if value == 'false' then return false end
  if type(value) == 'boolean' then return value end
  return nil
end

-- By bytes: Lua's own order of texts depends on the server's locale.
local function below(a, b)
  if a == b then return false end
  for i = 1, math.min(#a, #b) do
    local one, other = string.byte(a, i), string.byte(b, i)
    if one ~= other then
      compare.count(i / 16)
      return one < other
    end
  end
  return #a < #b
end

local function in_order(a, b, order)
  if type(a) == 'number' then
    if order == '<' then return a < b elseif order == '>' then return a > b elseif order == '{' then return a <= b end
    return a >= b
  end
  if order == '<' then return below(a, b) elseif order == '>' then return below(b, a) end
  if order == '{' then return not below(b, a) end
  return not below(a, b)
end

-- `order` is the letter of broker/selectors/program.py.
function compare.values(a, b, order)
  local equality = order == '=' or order == '!'
  if a == nil or b == nil then return nil end
  if type(a) == 'boolean' or type(b) == 'boolean' then
    a, b = compare.truth(a), compare.truth(b)
    if not equality then return nil end
  elseif type(a) ~= 'string' or type(b) ~= 'string' then
    a, b = compare.number(a), compare.number(b)
  end
  if a == nil or b == nil then return nil end
  if equality then return (a == b) == (order == '=') end
  return in_order(a, b, order)
end
